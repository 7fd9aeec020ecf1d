"""LangChain's standard tests of chat models over three APIs, for pytest; langchain_test.py runs them with BASE and MODEL."""
import os

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

MODEL = {"model": os.environ["MODEL"], "api_key": "none", "max_retries": 0}


class Standard(ChatModelIntegrationTests):
    supports_json_mode = True
    model_override_value = MODEL["model"]


class TestMessages(Standard):
    supports_json_mode = False   # of that API none
    supports_anthropic_inputs = True

    @property
    def chat_model_class(self):
        return ChatAnthropic

    @property
    def chat_model_params(self):
        return {**MODEL, "base_url": os.environ["BASE"], "max_tokens": 300}


class TestChat(Standard):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {**MODEL, "base_url": os.environ["BASE"] + "/v1", "stream_usage": True}


class TestResponses(TestChat):
    @property
    def chat_model_params(self):
        return {**super().chat_model_params, "use_responses_api": True}
